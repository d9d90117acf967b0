// An OpenID Connect provider with oidc-provider's own pages for logins, consents and devices.
// Argument: its configuration, in JSON.  The file of users is read at each question about a user.
import { readFileSync } from 'node:fs';
import { createServer } from 'node:https';

import Provider from 'oidc-provider';

const settings = JSON.parse(readFileSync(process.argv[2], 'utf8'));

const findAccount = (ctx, id) => {
  const groups = JSON.parse(readFileSync(settings.users, 'utf8'))[id];
  return groups && { accountId: id, claims: () => ({ sub: id, groups }) };
};

const provider = new Provider(settings.issuer, {
  clients: [
    {
      client_id: settings.client,
      token_endpoint_auth_method: 'client_secret_post', // as that of Google's clients for desktops
      client_secret: settings.secret,
      application_type: 'native',
      redirect_uris: ['http://localhost/callback'],
      grant_types: [
        'authorization_code',
        'refresh_token',
        'urn:ietf:params:oauth:grant-type:device_code',
      ],
    },
  ],
  claims: { openid: ['sub', 'groups'] },
  conformIdTokenClaims: false, // groups are in ID tokens, not only at the userinfo endpoint
  cookies: { keys: ['not-secret'] },
  features: { deviceFlow: { enabled: true }, revocation: { enabled: true } },
  findAccount,
});

const events = ['authorization.success', 'grant.success', 'grant.revoked', 'grant.error', 'server_error'];
for (const event of events) {
  provider.on(event, (ctx, error) =>
    console.log(event, ctx.oidc?.params?.grant_type ?? '', error?.error_description ?? ''));
}

const tls = { cert: readFileSync(settings.certificate), key: readFileSync(settings.key) };
createServer(tls, provider.callback()).listen(settings.port, '127.0.0.1');
