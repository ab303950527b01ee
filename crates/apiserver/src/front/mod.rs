//! The two ways in: in process, and over TLS on loopback. Both lead to the same server.
mod credentials;
mod listener;
mod patience;
mod service;

pub use self::{
    credentials::{Credentials, CredentialsError},
    listener::{Limits, ListenError, Listener},
    service::InProcess,
};
