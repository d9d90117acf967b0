package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// image is a substitute for an image's files and settings on this machine.
type image struct {
	Path        []string          `json:"path"`        // directories that come first in PATH
	Environment map[string]string `json:"environment"` // as ENV
	Entrypoint  []string          `json:"entrypoint"`  // as ENTRYPOINT and CMD
	Command     []string          `json:"command"`
	Directory   string            `json:"directory"` // as WORKDIR
}

// images are known by reference or repository, or by the last part of the repository's name.
type images map[string]image

// readImages reads images from a JSON file; without one there are none.
func readImages(path string) (known images, err error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if err == nil {
		if err = json.Unmarshal(data, &known); err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
	}
	return known, err
}

// of returns an image's substitute, which is empty for an unknown image: the machine's programs are used.
func (known images) of(reference string) image {
	repository, _, _ := strings.Cut(reference, "@")
	last := repository[strings.LastIndex(repository, "/")+1:]
	name, _, _ := strings.Cut(last, ":")
	repository = strings.TrimSuffix(repository, last) + name
	for _, key := range []string{reference, repository, name} {
		if found, ok := known[key]; ok {
			return found
		}
	}
	return image{}
}
