"""A launch over ssh: torchrun on every host, started and watched by agents. No torch is imported here."""
