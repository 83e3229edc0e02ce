#!/bin/sh
# The first process of a node of the kubeadm lab (e2e/src/kubeadm). It runs in namespaces of its
# own (mount, UTS, IPC, PID, network, cgroup), gives the node a file system, and then runs
# containerd, and kubelet whenever `systemctl start kubelet` asked for it.
#
# Every change that a program of the node makes to a file lands in memory or below NODE_FOLDER: the
# machine's own files are only read. All of it ends with this process.
#
# Environment: NODE_NAME, NODE_ADDRESS (IPv4/prefix), NODE_GATEWAY, NODE_HOSTS (lines of /etc/hosts),
# NODE_FOLDER (scratch on a disk), NODE_FILES (the folder of this script), NODE_SHOWN (folders that
# the node sees at the same paths, separated by colons), NODE_PATH (more folders of programs),
# NODE_PAUSE (the image of pod sandboxes).
set -eu
mount --make-rprivate /
hostname "$NODE_NAME"

# The file system: the machine's, with changes in memory. Only logs are on the disk, for later: three
# nodes and their etcd on one slow disk would wait for it most of the time.
memory=$NODE_FOLDER/memory
mkdir -p "$memory"
mount -t tmpfs tmpfs "$memory"
mkdir "$memory/upper" "$memory/work" "$memory/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$memory/upper,workdir=$memory/work" "$memory/root"
root=$memory/root
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
# So that the suite can look for files that were added.
mkdir "$root/run/changes"
mount --bind "$memory/upper" "$root/run/changes"
mount -t tmpfs -o size=5g tmpfs "$root/var/lib"
mkdir -p "$NODE_FOLDER/log"
mount --bind "$NODE_FOLDER/log" "$root/var/log"
IFS=:
for shown in "$NODE_FOLDER" $NODE_SHOWN; do
    mkdir -p "$root$shown"
    mount --bind "$shown" "$root$shown"
done
unset IFS

# kubelet sets these for the whole machine; here it sets a file instead.
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    file=$root/run/sysctl/${setting%=*}
    mkdir -p "${file%/*}"
    echo "${setting#*=}" >"$file"
    mount --bind "$file" "$root/proc/sys/${setting%=*}"
done

# The cgroup namespace shows the node's own groups as the roots.
mount -t tmpfs tmpfs "$root/sys/fs/cgroup"
for controller in cpu cpuacct cpuset memory devices freezer blkio pids; do
    mkdir "$root/sys/fs/cgroup/$controller"
    mount -t cgroup -o "$controller" cgroup "$root/sys/fs/cgroup/$controller"
done
mkdir "$root/sys/fs/cgroup/systemd"
mount -t cgroup -o none,name=systemd cgroup "$root/sys/fs/cgroup/systemd"

rm -f "$root/etc/resolv.conf" "$root/etc/hosts" "$root/usr/bin/systemctl"
echo "nameserver 127.0.0.1" >"$root/etc/resolv.conf"
printf '127.0.0.1 localhost\n%s\n' "$NODE_HOSTS" >"$root/etc/hosts"
cp "$NODE_FILES/systemctl" "$root/usr/bin/systemctl"
mkdir "$root/before"
cd "$root"
pivot_root . before
umount -l /before
rmdir /before
mount --make-rshared /

# The interface comes from outside.
ip link set lo up
until [ -e /sys/class/net/eth0 ]; do sleep 0.05; done
ip address add "$NODE_ADDRESS" dev eth0
ip link set eth0 up
ip route add default via "$NODE_GATEWAY"

# kubelet reports Ready only with a pod network. The pods of the lab use the host network.
mkdir -p /etc/cni/net.d
cat >/etc/cni/net.d/10-lab.conflist <<END
{"cniVersion": "0.4.0", "name": "lab", "plugins": [{"type": "loopback"}]}
END
# Without CAP_SYS_RESOURCE, which the machine may lack, nobody can lower oom_score_adj.
cat >/run/containerd.toml <<END
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$NODE_PAUSE"
  restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false
END
export PATH="$NODE_PATH:$PATH"
containerd --config /run/containerd.toml >/var/log/containerd.log 2>&1 &

while true; do
    if [ -e /run/kubelet.wanted ] && [ -e /var/lib/kubelet/config.yaml ]; then
        KUBELET_KUBEADM_ARGS=
        [ ! -e /var/lib/kubelet/kubeadm-flags.env ] || . /var/lib/kubelet/kubeadm-flags.env
        # kubeadm's own unit file has these flags. The arguments are several words.
        kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \
            --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml \
            $KUBELET_KUBEADM_ARGS >>/var/log/kubelet.log 2>&1 &
        echo $! >/run/kubelet.pid
        wait $! || true
    fi
    sleep 0.5
done
