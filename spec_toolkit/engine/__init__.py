"""Everything that is spelled as SGLang spells it: flags, names, patches, and the client that speaks to a running engine."""
