"""A launch command as the engine of SGLang 0.5.23 reads it: its flags, its parser's rules, its config file. Pure."""
