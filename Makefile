# make serve    install what the build needs, build, bring a model, serve it on 127.0.0.1:8000
# make test     install, build and run all tests
# make build    the release binary, build/release/tidemill
# make deps     only the packages
# Options of serve: MODEL=smollm2 (a name of models.txt, or the path of a file or folder), PORT=8000, ARGS="more flags"
MODEL ?= smollm2
PORT ?= 8000
ARGS ?=

# Objects are found again in a clone at another path, and by `make test` after `make build`.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1

.PHONY: help serve test build deps format clean
help:
	@sed -n '/^#/!q; s/^# //p' Makefile

deps:
	@tools/install_packages build

build: deps
	@[ -f build/release/build.ninja ] || cmake --preset release -DTIDEMILL_BUILD_TESTS=OFF >/dev/null
	@ninja -C build/release tidemill

serve: build
	@model="$(MODEL)"; [ -e "$$model" ] || model=$$(tools/fetch_model "$$model") || exit 1; \
	exec build/release/tidemill serve "$$model" --port $(PORT) $(ARGS)

test:
	@tools/install_packages all
	@tools/run_tests

format:
	@find src tests bench -name '*.h' -o -name '*.cpp' | xargs clang-format -i

clean:
	@rm -rf build
