"""Serve compiled models over HTTP: the Open Inference Protocol v2."""
