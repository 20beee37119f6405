# `make native` compiles the native engine's libraries for wheels, `make wheel` packs one with them.
.PHONY: native wheel

native:
	scripts/setup.sh wheel
	.venv/bin/python -m adaptivespec.native.prebuilt

# From the checkout, not from an sdist: that holds no libraries.
wheel: native
	.venv/bin/python -m build --wheel
