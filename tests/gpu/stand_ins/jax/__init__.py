"""As much of JAX as the sections use, over the simulated driver. The calls that it makes of others are JAX's."""

__version__ = "a stand-in"
