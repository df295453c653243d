//! `emberline tls`

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use anyhow::Context as _;
use api::shell_quoted;
use rcgen::{CertificateParams, CertifiedKey, DistinguishedName, DnType, KeyPair};

use crate::args::{SelfSignedArgs, TlsArgs, TlsCommand};
use crate::exit::BadInput;
use crate::output::print;

/// Names that every certificate has, for clients on the collector's own host.
const LOCAL_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

pub(crate) fn run(args: &TlsArgs) -> anyhow::Result<()> {
    match &args.command {
        TlsCommand::SelfSigned(args) => self_signed(args),
    }
}

fn self_signed(args: &SelfSignedArgs) -> anyhow::Result<()> {
    let mut names = args.names.clone();
    if names.is_empty() {
        let host = nix::unistd::gethostname().context("could not find this host's name")?;
        names.extend(host.into_string().ok());
    }
    let first = names
        .first()
        .cloned()
        .unwrap_or_else(|| LOCAL_NAMES[0].to_owned());
    names.extend(LOCAL_NAMES.map(str::to_owned));
    names.dedup();
    let CertifiedKey { cert, signing_key } = generate(names)?;
    let mut folder = DirBuilder::new();
    folder.recursive(true).mode(0o700);
    folder
        .create(&args.out)
        .with_context(|| format!("could not create {}", args.out.display()))?;
    let cert_path = args.out.join("cert.pem");
    let key_path = args.out.join("key.pem");
    create(&key_path, 0o600, &signing_key.serialize_pem())?;
    create(&cert_path, 0o644, &cert.pem())?;
    let fingerprint = tls::fingerprint(cert.der());
    let text = format!(
        "{fingerprint}\n\n\
         collector:  emberline serve --tls-cert {cert} --tls-key {key}\n\
         clients:    EMBERLINE_URL=https://{first}:4747#{fingerprint}\n",
        cert = shell_quoted(&cert_path.to_string_lossy()),
        key = shell_quoted(&key_path.to_string_lossy()),
    );
    print(text.as_bytes())
}

/// A certificate for these names, whose dates do not matter: clients accept it by its fingerprint.
fn generate(names: Vec<String>) -> anyhow::Result<CertifiedKey<KeyPair>> {
    let shown = names.join(", ");
    let mut params = CertificateParams::new(names)
        .map_err(|error| BadInput(format!("invalid --name among {shown}: {error}")))?;
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, "Emberline collector");
    let signing_key = KeyPair::generate().context("could not make a key")?;
    let cert = params
        .self_signed(&signing_key)
        .context("could not sign the certificate")?;
    Ok(CertifiedKey { cert, signing_key })
}

fn create(path: &Path, mode: u32, text: &str) -> anyhow::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    let failed = || format!("could not create {}", path.display());
    let mut file = options.open(path).with_context(failed)?;
    file.write_all(text.as_bytes()).with_context(failed)
}
