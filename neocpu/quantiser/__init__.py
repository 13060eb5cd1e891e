"""Quantising float32 models: ranges from calibration data, and a standard QDQ model out of them."""
