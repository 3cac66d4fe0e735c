"""How records read: as text for people and as JSON for machines. Nothing here decides."""
