"""What speculation is worth: theory.md's formulas over what was measured or published. Pure."""
