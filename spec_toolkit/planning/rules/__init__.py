"""One rule is one generator from records to findings; a module holds the rules about one thing."""
