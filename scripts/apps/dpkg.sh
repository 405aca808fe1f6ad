# packages: debootstrap dpkg
# A minimal Debian into a chroot on one mount, and a package installed into it from the other.
debootstrap --variant=minbase stable "$A/root" >"$WORK/debootstrap.txt" 2>&1 || { tail -3 "$WORK/debootstrap.txt"; exit 1; }
chroot "$B/root" dpkg --audit
chroot "$B/root" apt-get install -y -q --no-install-recommends file >"$WORK/apt.txt" 2>&1
chroot "$A/root" file /bin/sh | cut -c1-60
