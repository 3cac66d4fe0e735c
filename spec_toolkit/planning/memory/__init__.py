"""What lies in a GPU's memory, rank by rank: weights, KV, the reserve of a round, what stays outside. Pure."""
