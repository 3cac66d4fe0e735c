"""What people choose: the schema of a recipe, and reading one. Nothing here is derived; consequences are planning's."""
