"""DeepSeek-V3 at a thousandth of a thousandth of its size: MLA, sigmoid-scored experts in groups, yarn, one MTP layer."""
