# Installation and release files; included by the Makefile.

PREFIX  ?= /usr/local
DESTDIR ?=
DIST    ?= dist

.PHONY: install uninstall dist dist-check boot-check vulncheck

install: build ## install below DESTDIR and PREFIX: binary, units, man pages, completions, docs
	@DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' packaging/install.sh

uninstall: ## remove what install wrote; configuration and databases stay
	@DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' packaging/install.sh --remove

dist: ## write binaries, .deb, .rpm, OCI image, bills of materials and checksums to DIST
	@GO='$(GO)' packaging/dist.sh '$(DIST)'

dist-check: ## write everything twice and compare the bytes
	cd packaging && $(GO) test ./...
	@GO='$(GO)' packaging/dist-check.sh

boot-check: ## run the unit in a booted systemd, in namespaces of its own (as root on Linux)
	RELAY_BOOT_TEST=1 $(GO) test -count=1 -v -run 'Booted' ./systemd

vulncheck: ## look for known vulnerabilities, where the database can be reached
	@GO='$(GO)' packaging/vulncheck.sh
