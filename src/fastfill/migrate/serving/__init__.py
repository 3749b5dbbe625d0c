"""How a gallery is served while it is half new: measured on queries, chosen, said, kept."""
