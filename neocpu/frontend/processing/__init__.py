"""Steps of an artifact before and after its model: pictures in, answers out."""
