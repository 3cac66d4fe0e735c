"""DeepSeek-V3.2, GLM-5.1 and GLM-5.2 at a thousandth of a thousandth of their size: DeepSeek-V3's parts, and an indexer that selects."""
