"""Written against SGLang 0.5.23; each target carries the fingerprint of the source it was written for."""
