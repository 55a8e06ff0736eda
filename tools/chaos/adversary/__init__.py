"""What a hostile world does to a deployment: its model, its connections, its people; judged by the journals alone."""
