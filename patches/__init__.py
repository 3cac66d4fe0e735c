"""Changes to the engine, one folder per engine version and in it one per change; applied by spec_toolkit.plugin, never imported from here."""
