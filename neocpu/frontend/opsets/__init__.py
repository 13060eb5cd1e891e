"""What a model of an older version of the standard meant, in the words of a newer one."""
