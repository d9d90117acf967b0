// Command enter runs a container's command in the container's own file system and its pod's network.  The stand-in
// for the kubelet starts it, with an entry.Entry as JSON in the environment, and the pod's network as descriptor 3.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	securejoin "github.com/cyphar/filepath-securejoin"
	"golang.org/x/sys/unix"

	"realcluster/entry"
)

// network is the descriptor of the pod's network namespace.
const network = 3

// own are the machine's file systems that containers always share.
var own = []string{"/proc", "/sys", "/dev"}

// hidden are directories that a container never shares, even if they are separate file systems.
var hidden = []string{"/run"}

func init() { runtime.LockOSThread() } // namespaces belong to the thread that calls exec

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "enter:", err)
		os.Exit(128) // the code of container runtimes for a container that cannot be started
	}
}

func run() error {
	var e entry.Entry
	if err := json.Unmarshal([]byte(os.Getenv(entry.Variable)), &e); err != nil {
		return fmt.Errorf("%s: %w", entry.Variable, err)
	}
	os.Unsetenv(entry.Variable)
	if e.Network {
		if err := unix.Setns(network, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("network of the pod: %w", err)
		}
		unix.Close(network)
	}
	if e.Host != "" {
		if err := errors.Join(unix.Unshare(unix.CLONE_NEWUTS), unix.Sethostname([]byte(e.Host))); err != nil {
			return fmt.Errorf("host name: %w", err)
		}
	}
	join := create
	if e.Process > 0 {
		join = follow
	}
	if err := join(e); err != nil {
		return err
	}
	if err := os.Chdir(e.Directory); err != nil {
		return err
	}
	program, err := exec.LookPath(e.Command[0])
	if err != nil {
		return err
	}
	return unix.Exec(program, e.Command, os.Environ())
}

// follow enters the file system of a running process.
func follow(e entry.Entry) error {
	root, err := os.Open(fmt.Sprintf("/proc/%d/root", e.Process))
	if err != nil {
		return err
	}
	defer root.Close()
	mounts, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", e.Process))
	if err != nil {
		return err
	}
	defer mounts.Close()
	return errors.Join(
		unix.Unshare(unix.CLONE_FS),
		unix.Setns(int(mounts.Fd()), unix.CLONE_NEWNS),
		unix.Fchdir(int(root.Fd())),
		unix.Chroot("."),
	)
}

// create makes a file system that looks like the machine's, whose changes are the container's own, and enters it.
func create(e entry.Entry) error {
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		return fmt.Errorf("mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	shared, err := submounts()
	if err != nil {
		return err
	}
	// The layer with the changes is in memory: it must not be below the layer that it changes.
	if err := unix.Mount("container", e.Root, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("%s: %w", e.Root, err)
	}
	changes, work, root := filepath.Join(e.Root, "changes"), filepath.Join(e.Root, "work"), filepath.Join(e.Root, "root")
	for _, path := range []string{changes, work, root} {
		if err := os.Mkdir(path, 0o755); err != nil {
			return err
		}
	}
	options := fmt.Sprintf("lowerdir=/,upperdir=%s,workdir=%s", changes, work)
	if err := unix.Mount("container", root, "overlay", 0, options); err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	for _, path := range shared {
		if err := unix.Mount(path, filepath.Join(root, path), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	for _, mount := range e.Mounts {
		if err := bind(root, mount); err != nil {
			return fmt.Errorf("%s: %w", mount.Target, err)
		}
	}
	if e.ReadOnly {
		if err := unix.Mount("", root, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
			return err
		}
	}
	return errors.Join(os.Chdir(root), unix.Chroot("."))
}

// submounts returns the file systems directly below / that a container shares with the machine.
func submounts() (paths []string, err error) {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		path := strings.Fields(lines.Text())[4]
		if path != "/" && !strings.Contains(path, `\`) && !below(path, hidden) {
			paths = append(paths, path)
		}
	}
	slices.SortFunc(paths, func(a, b string) int { return len(a) - len(b) })
	outermost := slices.Clone(own)
	for _, path := range paths {
		if !below(path, outermost) {
			outermost = append(outermost, path)
		}
	}
	return outermost, lines.Err()
}

func below(path string, folders []string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool {
		return path == folder || strings.HasPrefix(path, folder+"/")
	})
}

// bind makes a file or directory of the machine appear in the container.
func bind(root string, mount entry.Mount) error {
	target, err := securejoin.SecureJoin(root, mount.Target)
	if err != nil {
		return err
	}
	source, err := os.Stat(mount.Source)
	if err != nil {
		return err
	}
	if source.IsDir() {
		err = os.MkdirAll(target, 0o755)
	} else if err = os.MkdirAll(filepath.Dir(target), 0o755); err == nil {
		var file *os.File
		if file, err = os.OpenFile(target, os.O_CREATE, 0o644); err == nil {
			err = file.Close()
		}
	}
	if err != nil {
		return err
	}
	if err := unix.Mount(mount.Source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	if mount.ReadOnly {
		return unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
	}
	return nil
}
