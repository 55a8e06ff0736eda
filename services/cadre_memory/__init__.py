"""The memory service: what agents keep beyond their runs, in a file or in Qdrant."""
