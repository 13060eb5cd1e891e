"""Quantising float32 models: ranges from calibration data, and a standard model in QDQ form."""
