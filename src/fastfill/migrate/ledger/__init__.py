"""What a migration keeps in its store beside its state: one module for each document."""
