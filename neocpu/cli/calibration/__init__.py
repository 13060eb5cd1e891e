"""Options that commands with calibration share."""
