"""The memory service: what agents keep beyond their runs, in Qdrant."""
