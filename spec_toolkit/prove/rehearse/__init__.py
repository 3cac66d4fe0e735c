"""A recipe's rehearsal: its settings, at toy size, on the real engine."""
