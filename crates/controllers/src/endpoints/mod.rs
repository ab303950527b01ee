use crate::runtime::{Context, Error, Key, Next, World};
use k8s_openapi::api::{core::v1::Pod, discovery::v1::EndpointSlice};
pub(crate) async fn reconcile(_context: &Context, _key: &Key) -> Result<Next, Error> {
    Ok(Next::default())
}
pub(crate) fn services_of<'a>(_pod: &'a Pod, _world: &'a World) -> impl Iterator<Item = Key> + 'a {
    std::iter::empty()
}
pub(crate) fn service_of(_slice: &EndpointSlice) -> Option<Key> {
    None
}
