"""What convolutions execute on an ARM CPU, counted without one."""
