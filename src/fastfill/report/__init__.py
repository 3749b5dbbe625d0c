"""Tables, figures, the HTML report."""
