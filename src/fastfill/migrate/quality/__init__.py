"""Quality of a migration: the sample that it is measured on, its forecast, and when to stop."""
