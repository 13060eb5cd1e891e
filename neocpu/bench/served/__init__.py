"""A served model beside direct calls of it."""
