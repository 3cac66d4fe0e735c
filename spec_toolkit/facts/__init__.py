"""What files, machines and tables say, with where each value comes from. Nothing here judges."""
