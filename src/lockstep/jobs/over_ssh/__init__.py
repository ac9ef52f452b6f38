"""A launch over ssh: torchrun on every host, started and watched through the agents of `hosts`. No torch is imported here."""
