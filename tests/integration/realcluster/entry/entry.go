// Package entry is the interface between the stand-in for the kubelet and the command enter.
package entry

// Variable of the environment has the Entry as JSON.
const Variable = "STANDIN_ENTRY"

// Entry is a command and the container in which it runs.
type Entry struct {
	Command   []string
	Directory string // the working directory, in the container
	Network   bool   // whether the pod's network is descriptor 3; without it, the machine's is used
	Host      string // the name of the machine that the container sees
	Process   int    // one in the container's file system, or 0 to create the file system

	// For a new file system:
	Root     string // an empty directory of the machine
	Mounts   []Mount
	ReadOnly bool // except for the mounts
}

// Mount is a file or directory of the machine in a container.
type Mount struct {
	Source, Target string
	ReadOnly       bool
}
