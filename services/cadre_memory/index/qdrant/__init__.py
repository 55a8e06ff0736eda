"""A store on a Qdrant server, through its client."""
