//! The two transports to the server: a tower service in the same process, and TLS on loopback.
mod credentials;
mod in_process;
mod listener;
mod write_timeout;

pub use self::{
    credentials::{Credentials, CredentialsError},
    in_process::InProcess,
    listener::{Limits, ListenError, Listener},
};
