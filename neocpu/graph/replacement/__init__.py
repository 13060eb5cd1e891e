"""Rules that replace operators by others which compute the same."""
