"""What commands that calibrate share."""
