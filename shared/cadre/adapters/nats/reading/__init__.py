"""Journals as others than their runs read them: page by page, to the live end, as bytes, for the index."""
