"""What follows from a recipe: derived values and findings. Pure; a bad recipe makes findings, never an exception."""
