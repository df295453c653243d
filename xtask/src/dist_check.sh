# Installs the Debian package $1 in a copy-on-write copy of this machine's root, in namespaces of its own;
# starts the service's command as its user, asks it, and removes the package again.
mount --make-rprivate /
copy=$(mktemp -d)
mount -t tmpfs tmpfs "$copy"
mkdir "$copy/upper" "$copy/work" "$copy/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$copy/upper,workdir=$copy/work" "$copy/root"
mount -t proc proc "$copy/root/proc"
mount --bind /dev "$copy/root/dev"
mount -t tmpfs tmpfs "$copy/root/tmp"
mount -t tmpfs tmpfs "$copy/root/run"
cp "$1" "$copy/root/tmp/emberline.deb"
ip link set lo up

exec chroot "$copy/root" sh -eu <<'CHECK'
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
dpkg --install /tmp/emberline.deb
id emberline
test "$(stat -c '%U %a' /var/lib/emberline)" = 'emberline 700'
systemd-analyze verify --man=yes emberline.service
test -f /usr/share/man/man1/emberline-serve.1.gz
bash -n /usr/share/bash-completion/completions/emberline

# The service's command, by its user.
command=$(sed -n 's/^ExecStart=//p' /lib/systemd/system/emberline.service)
setpriv --reuid emberline --regid emberline --clear-groups --no-new-privs $command &
service=$!
tries=0
until curl --silent --fail http://127.0.0.1:4747/readyz > /dev/null; do
    tries=$((tries + 1))
    test $tries -lt 300
    sleep 0.1
done
emberline workers > /dev/null
emberline record -o /tmp/report.html -- sh -c 'n=0; while test $n -lt 300000; do n=$((n + 1)); done'
test -s /tmp/report.html
kill -TERM $service
wait $service
test -n "$(ls /var/lib/emberline)"

dpkg --remove emberline
test ! -e /usr/bin/emberline
test -e /etc/emberline/serve.toml
test -n "$(ls /var/lib/emberline)"
dpkg --purge emberline
test ! -e /etc/emberline/serve.toml
test ! -e /var/lib/emberline
echo 'the package was installed, served, and left nothing'
CHECK
