"""What an artifact does before and after its model: pictures in, answers out."""
